set terminal svg size 1080,540 dynamic noenhanced background rgb 'white' font 'sans,13'
set output 'gain.svg'
set title 'Speed against fp32 at the same rate'
set xlabel 'rate'
set ylabel 'gain'
set grid
set key outside right top Left reverse samplen 3
set logscale x 10
set xtics ('unshaped' 30000, '10gbit' 10000, '1gbit' 1000, '500mbit' 500, '300mbit' 300, '100mbit' 100, '50mbit' 50, '14mbit' 14) rotate by -35
set yrange [0:*]
set xrange [9.33333:45000]
plot 'gain.dat' index 0 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 4 linecolor rgb '#D55E00' title 'fp32', \
  'gain.dat' index 1 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 5 linecolor rgb '#0072B2' title 'fp16', \
  'gain.dat' index 2 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 6 linecolor rgb '#009E73' title 'DirectQ, 4 and 8 bits', \
  'gain.dat' index 3 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 7 linecolor rgb '#CC79A7' title 'AC-SGD, 2 and 4 bits', \
  'gain.dat' index 4 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 8 linecolor rgb '#E69F00' title 'AC-SGD, 4 and 8 bits', \
  'gain.dat' index 5 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 9 linecolor rgb '#56B4E9' title 'ac-sgd', \
  'gain.dat' index 6 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 10 linecolor rgb '#7F7F7F' title 'rotated', \
  'gain.dat' index 7 using 1:2:3:4 with yerrorlines linewidth 2 pointtype 11 linecolor rgb '#000000' title 'ac-sgd, bypass auto'
set terminal pngcairo size 1080,540 noenhanced background rgb 'white' font 'sans,11'
set output 'gain.png'
replot
